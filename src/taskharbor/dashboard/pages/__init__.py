"""The pages: each reads what it shows through an operator's sight, and returns plain values. None of them draws."""
