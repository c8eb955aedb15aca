"""The tables of a run: their store on disk, how batches are written, views, values derived from them."""
