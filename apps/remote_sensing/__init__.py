"""Super-resolution of georeferenced imagery."""
