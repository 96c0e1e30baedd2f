"""The pages: each reads what it shows through `taskharbor.ops`, and returns plain values. Templates draw them."""
