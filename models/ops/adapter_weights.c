/* Adapters that form a weight of the layer's size in every call and multiply with it: LoHa, LoKr,
 * FourierFT.  As peft 0.20 writes their forward. */
#include "adapters.h"
#include "config/arch.h"

/* result + x W', in x's type (tuners/lycoris_utils.py, tuners/fourierft/layer.py); x is cast to W's. */
static struct oom_val with_weight(struct oom_tape *t, struct oom_val x, struct oom_val y,
				  struct oom_val w, const struct oom_linear *l)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val c = oom_op_cast(t, oom_keep(x), (enum oom_dtype)w.dt), d;

	d = oom_op_matmul_param(t, "delta weight", oom_keep(c), oom_keep(w), oom_none(), l->out);
	y = oom_op_cast(t, oom_op_add(t, y, d), dt);
	oom_drop(t, w);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

/* A weight out of the layer's n parameters by a function whose backward is its own: it keeps no more
 * than these, and has the given temporaries alive beside its gradient: so many of the weight's size and
 * type, so many bytes for every element of it. */
static struct oom_val made_of(struct oom_tape *t, const char *name, const struct oom_linear *l, int n,
			      struct oom_temps temps, enum oom_dtype dt)
{
	struct oom_val w;
	int32_t node = -1;

	if (t->grad) {
		node = oom_node(t, OOM_NODE_CUSTOM, name);
		for (int i = 0; i < n; i++) {
			oom_node_edge(t, node, l->p[i]);
			oom_node_save(t, node, l->p[i]);
		}
		if (node >= 0)
			t->nodes[node].temps = temps;
	}
	w = oom_new(t, name, OOM_MONO_ONE, (struct oom_dim){l->in * l->out.n, "d_in * d_out"}, dt);
	return t->grad ? oom_node_out(t, node, 0, w) : w;
}

/* ---- LoHa ---- */

static size_t loha_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const uint64_t r = (uint64_t)t->plan->lora_r;

	(void)name;
	q[0] = (struct oom_adapter_param){"hada_w1_a", out, r, OOM_P_LINEAR};
	q[1] = (struct oom_adapter_param){"hada_w1_b", r, in, OOM_P_LINEAR};
	q[2] = (struct oom_adapter_param){"hada_w2_a", out, r, OOM_P_LINEAR};
	q[3] = (struct oom_adapter_param){"hada_w2_b", r, in, OOM_P_LINEAR};
	return 4;
}

/* ((w1_a w1_b) * (w2_a w2_b)) * scale (tuners/loha/layer.py, HadaWeight).  Backward: the scaled
 * gradient, one of the products and two products with it are alive together, the latter three in the
 * parameters' own type: no autocast reaches a backward. */
static struct oom_val loha(struct oom_tape *t, struct oom_val x, struct oom_val y,
			   const struct oom_linear *l)
{
	const enum oom_dtype dt = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)l->p[0].dt;
	const uint8_t own = (uint8_t)(3 * oom_dtype_bytes((enum oom_dtype)l->p[0].dt));
	struct oom_val part[2], cast[4], both, w;

	for (int i = 0; i < 2; i++) {
		cast[2 * i] = oom_amp_cast(t, oom_keep(l->p[2 * i]));
		cast[2 * i + 1] = oom_amp_cast(t, oom_keep(l->p[2 * i + 1]));
		part[i] = oom_scratch_hold(t, "w_a w_b", OOM_MONO_ONE, l->in * l->out.n, dt);
	}
	both = oom_scratch_hold(t, "product", OOM_MONO_ONE, l->in * l->out.n, dt);
	for (int i = 0; i < 2; i++)
		oom_drop(t, part[i]);
	w = made_of(t, "HadaWeight", l, 4, (struct oom_temps){.full = 1, .flags = own}, dt);
	oom_drop(t, both);
	for (int i = 0; i < 4; i++)
		oom_drop(t, cast[i]);
	return with_weight(t, x, y, w, l);
}

const struct oom_adapter oom_adapter_loha = {.params = loha_params, .after = loha};

/* ---- LoKr ---- */

/* The two factors of n that are nearest to each other, the smaller first (tuners/lokr/layer.py,
 * factorization). */
static uint64_t small_factor(uint64_t n)
{
	uint64_t m = 1;

	for (uint64_t i = 2; i <= n / i; i++)
		if (n % i == 0)
			m = i;
	return m;
}

/* The right factor is a product where the rank is less than half of its longer side. */
static bool right_is_whole(const struct oom_tape *t, uint64_t k, uint64_t n)
{
	return 2 * (uint64_t)t->plan->lora_r >= (k > n ? k : n);
}

static size_t lokr_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const uint64_t r = (uint64_t)t->plan->lora_r, l = small_factor(out), m = small_factor(in),
		       k = out / l, n = in / m;

	(void)name;
	q[0] = (struct oom_adapter_param){"lokr_w1", l, m, OOM_P_LINEAR};
	if (right_is_whole(t, k, n)) {
		q[1] = (struct oom_adapter_param){"lokr_w2", k, n, OOM_P_LINEAR};
		return 2;
	}
	q[1] = (struct oom_adapter_param){"lokr_w2_a", k, r, OOM_P_LINEAR};
	q[2] = (struct oom_adapter_param){"lokr_w2_b", r, n, OOM_P_LINEAR};
	return 3;
}

/* kron(w1, w2_a w2_b) * scale: one multiplication with broadcast (torch/linalg, aten kron), and the
 * scaled copy of it. */
static struct oom_val lokr(struct oom_tape *t, struct oom_val x, struct oom_val y,
			   const struct oom_linear *l)
{
	const uint64_t k = l->out.n / small_factor(l->out.n), n = l->in / small_factor(l->in);
	struct oom_val right = oom_keep(l->p[1]), whole;

	if (!right_is_whole(t, k, n))
		right = oom_op_bmm(t, "w2", l->p[1], l->p[2], OOM_MONO_ONE,
				   (struct oom_dim){k * n, "lokr_w2"}, (uint64_t)t->plan->lora_r);
	whole = oom_op_mul(t, oom_op_expand(t, oom_keep(l->p[0]), OOM_MONO_ONE,
					    (struct oom_dim){l->in * l->out.n, "d_in * d_out"}), right);
	whole.perm = false;
	return with_weight(t, x, y, oom_op_unary(t, OOM_SCALE, whole), l);
}

const struct oom_adapter oom_adapter_lokr = {.params = lokr_params, .after = lokr};

/* ---- FourierFT ---- */

static size_t fourier_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			     struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	(void)name;
	(void)in;
	(void)out;
	q[0] = (struct oom_adapter_param){"fourierft_spectrum", 0, (uint64_t)t->plan->lora_r, 0};
	return 1;
}

/* ifft2(spectrum).real * scaling in fp32: zeros, the complex input and its transform, of which the
 * real part is a view (tuners/fourierft/layer.py, get_delta_weight).  Backward goes the same way. */
static struct oom_val fourier(struct oom_tape *t, struct oom_val x, struct oom_val y,
			      const struct oom_linear *l)
{
	const uint64_t n = l->in * l->out.n;
	struct oom_val dense = oom_scratch_hold(t, "spectrum", OOM_MONO_ONE, n, OOM_F32), in, out, w;

	oom_buffer(t, 2 * l->p[0].width, OOM_I64);      /* indices */
	in = oom_scratch_hold(t, "complex spectrum", OOM_MONO_ONE, 2 * n, OOM_F32);
	out = oom_scratch_hold(t, "transform", OOM_MONO_ONE, 2 * n, OOM_F32);
	oom_drop(t, in);
	w = made_of(t, "ifft2", l, 1, (struct oom_temps){.full = 4}, OOM_F32);
	oom_drop(t, out);
	oom_drop(t, dense);
	return with_weight(t, x, y, w, l);
}

const struct oom_adapter oom_adapter_fourier = {.params = fourier_params, .after = fourier};
