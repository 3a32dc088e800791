"""What the classes of the standard data sets are called, in the order of their labels."""

from __future__ import annotations

import string

__all__ = [
    "CIFAR10_CLASSES",
    "CIFAR100_CLASSES",
    "DIGITS",
    "EMNIST_CLASSES",
    "FASHION_CLASSES",
    "HAR_CLASSES",
]

DIGITS = tuple(string.digits)

EMNIST_CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""The 62 classes of the byclass split."""

FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)

HAR_CLASSES = (
    *("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS"),
    *("SITTING", "STANDING", "LAYING"),
)

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

CIFAR100_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
    couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
    house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket
    rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip
    turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905 -- a hundred quotation marks would hide the names
)
"""The fine labels."""
