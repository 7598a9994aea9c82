"""Data preparation: read a job's data, pack it into fixed-length records, write them. Ray only in ray_pipeline.py."""
