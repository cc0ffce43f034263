import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

x = np.random.default_rng(0).normal(size=(5000, 20)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(20,))])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
optimizer = tfp.DPKerasSGDOptimizer(l2_norm_clip=1.0, noise_multiplier=1.1, num_microbatches=250, learning_rate=0.5)
model.compile(optimizer, loss)
model.fit(x, y, batch_size=250, epochs=3, verbose=0)

print("noise multiplier", 1.1)
print(
    tfp.compute_dp_sgd_privacy_statement(
        number_of_examples=5000,
        batch_size=250,
        num_epochs=3,
        noise_multiplier=1.1,
        delta=1e-5,
        used_microbatching=False,
    )
)
