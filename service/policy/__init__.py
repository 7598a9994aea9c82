"""Pure decisions: no clock, no logger, no Ray, no SQL. Values in, decision values out."""
