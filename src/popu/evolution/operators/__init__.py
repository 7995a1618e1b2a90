"""One operator a file; `registry` collects them."""
