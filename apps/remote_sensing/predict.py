def predict_files(task, inputs, output, provenance, tile=None, memory_GiB=0.25, white=None, bands=(), nodata=None, alpha="auto", mosaic=False, world=None):
    return output
