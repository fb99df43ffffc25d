/* Convolutions, batch and group norms, pools against PyTorch (measured/conv.csv; the same cases in
 * Python: tests/tools/measured/conv.py). */
#include "tape_case.h"

#define CONV(name, ...)                                                                      \
	CASE_MAP(name, 8, 14, 14)                                                            \
	{                                                                                    \
		return oom_conv2d(t, "conv", m, &(struct oom_conv){__VA_ARGS__}).x;          \
	}

CONV(conv, .out = 12, .kernel = 3, .pad = 1, .bias = true)
CONV(conv_no_bias, .out = 12, .kernel = 3, .pad = 1)
CONV(conv_stride, .out = 12, .kernel = 3, .stride = 2, .pad = 1, .bias = true)
CONV(conv_groups, .out = 12, .kernel = 3, .pad = 1, .groups = 4, .bias = true)
CONV(conv_depthwise, .out = 8, .kernel = 7, .pad = 3, .groups = 8, .bias = true)
CONV(conv_1x1, .out = 24, .kernel = 1, .bias = true)
CONV(conv_dilated, .out = 12, .kernel = 3, .pad = 2, .dilation = 2, .bias = true)
CONV(conv_patches, .out = 32, .kernel = 7, .stride = 7, .bias = true)
CONV(conv_tall, .out = 12, .kernel = 3, .kernel_w = 1, .pad = 1, .bias = true)
CONV(conv_strides, .out = 12, .kernel = 3, .stride = 2, .stride_w = 1, .pad = 1, .bias = true)
CONV(conv_standardized, .out = 12, .kernel = 3, .pad = 1, .standardized = true)
CONV(conv_channels_last, .out = 12, .kernel = 3, .pad = 1, .bias = true, .channels_last = true)
CONV(conv_channels_last_1x1, .out = 12, .kernel = 1, .bias = true, .channels_last = true)

CASE_MAP(batch_norm, 8, 14, 14) { return oom_batch_norm(t, "norm", m).x; }
CASE_MAP(group_norm, 8, 14, 14) { return oom_group_norm(t, "norm", m, 4).x; }
CASE_MAP(channel_norm, 8, 14, 14) { return oom_channel_norm(t, "norm", m).x; }
CASE_MAP(max_pool, 8, 14, 14) { return oom_max_pool(t, m, 3, 2, 1).x; }
CASE_MAP(avg_pool, 8, 14, 14) { return oom_avg_pool(t, m, 2, 2, 0).x; }
CASE_MAP(global_pool, 8, 14, 14) { return oom_global_pool(t, m); }
CASE_MAP(adaptive_pool, 8, 14, 14) { return oom_global_pool(t, m); }
CASE_MAP(pad, 8, 14, 14) { return oom_pad_map(t, m, 16, 16).x; }

static struct oom_map more(struct oom_tape *t)
{
	return (struct oom_map){tape_input(t, t->m_b, 4 * 14 * 14, tape_dtype(t)), 4, 14, 14};
}
CASE_MAP(cat_two, 8, 14, 14)
{
	return oom_cat_maps(t, (struct oom_map[]){m, more(t)}, 2).x;
}
CASE_MAP(cat_five, 8, 14, 14)
{
	struct oom_map part[5] = {m};

	for (int i = 1; i < 5; i++)
		part[i] = oom_map_act(t, OOM_ACT_RELU, more(t));
	return oom_cat_maps(t, part, 5).x;
}
CASE_MAP(tokens, 8, 14, 14) { return oom_op_unary(t, OOM_SILU, oom_map_tokens(t, m)); }

static const struct oom_conv conv_bn = {.out = 12, .kernel = 3, .pad = 1};

CASE_MAP(conv_bn_act, 8, 14, 14) { return oom_conv_bn_act(t, m, &conv_bn, OOM_ACT_RELU).x; }
CASE_MAP(two_blocks, 8, 14, 14)
{
	static const struct oom_conv narrow = {.out = 8, .kernel = 1, .bias = true};
	struct oom_map y = oom_conv_bn_act(t, oom_map_keep(m), &conv_bn, OOM_ACT_RELU);
	const struct oom_val name = y.x;

	y = oom_conv2d(t, "conv", oom_map_keep(y), &narrow);
	y.x = oom_op_add(t, y.x, m.x);
	oom_drop(t, name);
	return y.x;
}
CASE_MAP(drop_path, 8, 14, 14)
{
	struct oom_val y = oom_drop_path(t, oom_op_unary(t, OOM_RELU, oom_keep(m.x)));

	return oom_op_add(t, m.x, y);
}

int main(void)
{
	return tape_cases_check("conv") != 0;
}
