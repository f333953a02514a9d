"""Small models, batches and recipes that the distillation tests share."""

from __future__ import annotations

import hashlib

import torch

from distill.config.train import DistillConfig
from distill.data.batch import Batch
from distill.models.forward import visit_indexer_calls
from distill.models.student import Students
from distill.objective.plan import make_plan
from evalkit.dsa import ReuseSchedule, index_features
from evalkit.dsa.families.sites import indexer_sites
from tests.dsa.tiny import tokens

LENGTH = 48


def batch(size=2, length=LENGTH, seed=0):
    ids = tokens(size, length, seed)
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool))


def schedule_of(model, retention="1/4", lag=0, **kwargs):
    return ReuseSchedule.uniform(indexer_sites(model).layout.layer_ids, retention, lag, **kwargs)


def setup(model, retention="1/4", lag=0, layers=None, selection=None, **sections):
    """(schedule, students, plan) of a model."""
    schedule = schedule_of(model, retention, lag)
    arm = {"retention": retention, "lag": lag} | ({"selection": selection} if selection else {})
    config = DistillConfig.model_validate({"model": "x", "arm": arm, **sections})
    layers = schedule.full_layers if layers is None else layers
    students = Students.of_model(indexer_sites(model), layers)
    return schedule, students, make_plan(model, schedule, layers, config)


def features_of(model, text, layer, positions=None, schedule=None):
    """Index features of one layer's own indexer."""
    sites, features = indexer_sites(model), {}

    def visit(ordinal, call):
        indexer = sites.owners[ordinal].indexer
        features[ordinal] = index_features(model, indexer, call, positions)

    visit_indexer_calls(model, schedule or sites.layout.native, text, visit, layers=[layer])
    return features[layer]


def digest(model):
    """sha256 over every tensor of a model, names included."""
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(name.encode())
        total.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
