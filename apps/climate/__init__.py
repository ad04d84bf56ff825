"""Climate segmentation: weather events, or any labelled field, on maps read with xarray."""
