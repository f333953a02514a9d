"""Where the students begin: own indexers, random ones, ridge regression."""
