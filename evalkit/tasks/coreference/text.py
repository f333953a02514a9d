"""Requests and replies of a conversation, put together from our own words."""

from __future__ import annotations

import random
from dataclasses import dataclass

FORMS = ("note", "letter", "speech", "diary entry", "review", "short story", "report", "sketch")
STYLES = ("cheerful", "formal", "dreamy", "dry", "rustic", "breathless")
TOPICS = (
    "lighthouses",
    "umbrellas",
    "beekeeping",
    "tide pools",
    "clock towers",
    "night trains",
    "paper kites",
    "mushrooms",
    "ferry boats",
    "stone bridges",
    "libraries",
    "snow ploughs",
    "garden snails",
    "violins",
    "lost gloves",
    "bakeries",
    "windmills",
    "postcards",
    "chess games",
    "hot springs",
    "market stalls",
    "telescopes",
    "row houses",
    "meadow paths",
)

WHO = (
    "my neighbour",
    "the ferryman",
    "an old teacher",
    "the baker's niece",
    "a patient clerk",
    "the new gardener",
    "her eldest cousin",
    "a travelling cook",
    "the night porter",
    "our quiet uncle",
    "the map seller",
    "a retired pilot",
    "the choir master",
    "his younger sister",
)
DID = (
    "counted",
    "praised",
    "mended",
    "sketched",
    "forgot",
    "described",
    "defended",
    "collected",
    "doubted",
    "photographed",
    "hid",
    "polished",
    "inherited",
    "questioned",
)
SIZE = (
    "small",
    "weathered",
    "crooked",
    "silver",
    "borrowed",
    "heavy",
    "painted",
    "nameless",
    "damp",
    "careful",
    "half-finished",
    "foreign",
    "pale",
    "noisy",
)
THING = (
    "lantern",
    "basket",
    "saddle",
    "ladder",
    "notebook",
    "kettle",
    "coat",
    "barometer",
    "window",
    "stool",
    "blanket",
    "whistle",
    "drawer",
    "envelope",
)
WHERE = (
    "behind the station",
    "near the harbour",
    "under the stairs",
    "across the valley",
    "in the back garden",
    "beside the mill",
    "above the workshop",
    "at the edge of town",
    "along the canal",
    "inside the chapel",
    "below the terrace",
    "outside the theatre",
)
WHEN = (
    "one morning in March",
    "before the first frost",
    "during the long strike",
    "late on a Sunday",
    "after the harvest",
    "in the year of the flood",
    "at half past six",
    "on the last day of term",
    "while the rain went on",
    "shortly after midnight",
    "between two holidays",
    "as the fair began",
)
WHY = (
    "because nobody else would",
    "to settle an old bet",
    "for reasons never written down",
    "since the road was closed",
    "without telling anyone",
    "to please a stranger",
    "although the price was high",
    "as a kind of apology",
    "in spite of the noise",
    "so that it would be remembered",
)
SENTENCES = (
    "{When} {who} {did} a {size} {thing} {where}, {why}.",
    "{Who} spoke of {topic} {when} and {did} the {size} {thing} {where}.",
    "Nothing about {topic} surprised {who}, who {did} {number} {thing}s {where} {when}.",
    "{Where} there was talk of {topic}, and {who} {did} a {size} {thing} {why}.",
    "It took {number} days until {who} {did} the {thing} {where}, {why}.",
    "Of all {topic}, {who} {did} only the {size} ones {where}, {when}.",
    "{Who} kept {number} {size} {thing}s {where} and {did} them {when}.",
    "A {size} {thing} and {number} stories about {topic} were all that {who} {did} {where}.",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a reply is to be: three words, each from a short list."""

    form: str
    topic: str
    style: str

    @property
    def text(self) -> str:
        """The user's words."""
        return f"Write a {self.form} about {self.topic} in a {self.style} style."


def request(source: random.Random) -> Request:
    """A random request."""
    return Request(source.choice(FORMS), source.choice(TOPICS), source.choice(STYLES))


def nearby(asked: Request, source: random.Random) -> Request:
    """A request that differs from the asked one in one word."""
    which = source.randrange(3)
    form, topic, style = asked.form, asked.topic, asked.style
    if which == 0:
        form = source.choice([f for f in FORMS if f != form])
    elif which == 1:
        topic = source.choice([t for t in TOPICS if t != topic])
    else:
        style = source.choice([s for s in STYLES if s != style])
    return Request(form, topic, style)


def reply(about: Request, sentences: int, source: random.Random) -> str:
    """So many sentences about the topic, of random parts."""
    templates = [
        template
        for _ in range(-(-sentences // len(SENTENCES)))
        for template in source.sample(SENTENCES, len(SENTENCES))
    ]
    return " ".join(_filled(t, about.topic, source) for t in templates[:sentences])


def _filled(template: str, topic: str, source: random.Random) -> str:
    parts = {
        "who": source.choice(WHO),
        "did": source.choice(DID),
        "size": source.choice(SIZE),
        "thing": source.choice(THING),
        "where": source.choice(WHERE),
        "when": source.choice(WHEN),
        "why": source.choice(WHY),
    }
    capital = {name.capitalize(): text[0].upper() + text[1:] for name, text in parts.items()}
    number = str(source.randrange(3, 1000))
    return template.format(**parts, **capital, topic=topic, number=number)
