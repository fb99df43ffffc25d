/* One size under the names that configs of other traditions give it. */
#include <string.h>

#include "arch.h"

/* Words for one size, the most usual first: what a config of another tradition may call it. */
static const char *const words[][8] = {
	{"hidden_size", "d_model", "n_embd", "dim", "model_dim", "embed_dim", "hidden_dim", NULL},
	{"num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers", NULL},
	{"num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads", "decoder_attention_heads", NULL},
	{"num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num", "n_head_kv", NULL},
	{"intermediate_size", "n_inner", "d_ff", "ffn_dim", "d_inner", "ffn_hidden_size", "encoder_ffn_dim", NULL},
	{"vocab_size", "padded_vocab_size", "n_vocab", NULL},
	{"max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx", NULL},
	{"head_dim", "kv_channels", "d_kv", NULL},
};

const char *oom_read_other_word(const char *key, size_t i)
{
	for (size_t g = 0; g < sizeof(words) / sizeof(words[0]); g++)
		for (size_t j = 0; words[g][j]; j++)
			if (!strcmp(words[g][j], key))
				return words[g][i];
	return NULL;
}
