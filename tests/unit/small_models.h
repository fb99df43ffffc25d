/* The keys of small models whose parameters and saved tensors are summed by hand, and the letters of those sums. */
#ifndef OOM_TESTS_SMALL_MODELS_H
#define OOM_TESTS_SMALL_MODELS_H

/* Vocabulary, width, feed-forward, layers, heads, key-value heads, a head's width, positions. */
enum { V = 1000, H = 64, F = 128, L = 3, A = 4, KV = 2, HEAD = H / A, P = 512 };

#define SIZES                                                                                   \
	"\"vocab_size\":1000,\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":3," \
	"\"num_attention_heads\":4,\"max_position_embeddings\":512,\"pad_token_id\":0,\"bos_token_id\":1,"              \
	"\"eos_token_id\":2"
#define GROUPED SIZES ",\"num_key_value_heads\":2"
#define UNTIED ",\"tie_word_embeddings\":false"
#define TIED ",\"tie_word_embeddings\":true"

/* an image of 32 x 32 in patches of 8, 3 channels: 16 patches and a class token */
enum { PATCHES = 16, PIXELS = 3 * 64 };
#define IMAGE SIZES ",\"image_size\":32,\"patch_size\":8,\"num_channels\":3"

#endif
