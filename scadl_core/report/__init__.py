"""What a person reads: the data report, figures, the page of a run."""
