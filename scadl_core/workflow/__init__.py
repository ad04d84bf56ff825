"""A run: train, evaluate, predict, in one folder that can be taken up again."""
