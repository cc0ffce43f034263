"""Defaults that several recipes share, each written once. What a recipe's paper does otherwise stands in the recipe."""

SAMPLE = "poisson:0.5"  # half of the clients in each round, each drawn by itself
OWN_RELATION = ""  # the sampler's own
NOISE_MULTIPLIER = 1.0

LR = 0.5
EPOCHS = 5
STEPS = 0  # epochs, then
BATCH_SIZE = 10
MOMENTUM = 0.0
WEIGHT_DECAY = 0.0
LR_DECAY = 1.0  # none
PROXIMAL = 0.0  # none

SERVER_OPTIMIZER = "sgd"
SERVER_LR = 1.0
AVERAGE = 0.0  # the last iterate

RECORD_CLIP = 1.0  # of a record's gradient, or of a message with noise of its own
RECORD_NOISE = 2.0  # of PriFedSync: twice its sigma
RECORDS = 600  # of a client, at least
RECORD_STEPS = 38  # of PriFedSync: an epoch in batches of 16

QUERIES = 500
CLASSES = 10
STDDEV = 25.0  # of votes
VOTERS = "everyone"
STUDENT = "ridge"
ORDER = "in-order"
