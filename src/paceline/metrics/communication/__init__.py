"""Collectives and messages: their events, joined over the ranks, and what is summed of them."""
