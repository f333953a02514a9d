"""Schedules in the settings of serving and training engines, and back."""
