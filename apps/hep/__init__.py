"""Particle physics: which process does a jet, an event or an object come from?"""
