"""What a run leaves behind: its folder, provenance, data report, figures, the report page."""
