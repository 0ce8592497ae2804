"""The studies behind ``pacefno study``: which part of the method earns what, and what its theory says, in numbers."""
