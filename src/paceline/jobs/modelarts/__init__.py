"""Jobs on ModelArts, through the vendor's SDK (extra `modelarts`; it takes seconds to load, so only when used)."""
