"""Decide what is wrong: hang, straggler, desync, loss spike, bad node. Pure."""
