"""Turns a job's data into fixed-length records, once: what is read, packed and written. Ray only in ray_pipeline.py."""
