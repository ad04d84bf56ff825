"""Learning on graphs: nodes with features and labels, from the files people have."""
