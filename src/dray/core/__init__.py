"""The nouns of dray: plain data and the interfaces between the rooms. Nothing here reads, writes or connects."""
