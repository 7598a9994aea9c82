"""Steps of the restart check, on which ranks and supervisor agree."""

SAVED_STEP = 2
"""The first generation takes a snapshot of this step, and the next one starts from it."""
COMPARED_STEPS = (3, 4)
"""Steps that both generations take and whose states are compared. The first generation ends after the last of them."""
