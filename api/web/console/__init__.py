"""The console: the files of the front end, which the build of `console/` writes, and the addresses of its pages."""
