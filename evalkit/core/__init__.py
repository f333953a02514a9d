"""The ground floor: nouns, errors, files, recipes, models, tables as cells."""
