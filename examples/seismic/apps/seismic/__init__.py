"""Seismic phase picking: when do P and S waves arrive at a station?"""
