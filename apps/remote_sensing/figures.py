"""Pictures."""
def draw(task, source, folder, num_samples):
    return {}
