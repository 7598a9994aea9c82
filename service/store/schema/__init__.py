"""The tables of the database, the types of their columns, and the migrations that create them."""
