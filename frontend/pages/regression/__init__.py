"""The page of one regression: its sentence and facts, suspects, onsets, what happened, and what people do there."""
