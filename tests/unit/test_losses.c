/* Losses and Liger's kernels: what each keeps and needs, by hand from the sources that models/blocks/
 * fused_loss.c, loss.c and blocks.c name, beside the measured rows of tests/accuracy/techniques.csv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tiny_llama.h"

static uint64_t kept(const char *words)
{
	return of(words).saved_bytes;
}

static uint64_t backward(const char *words)
{
	return of(words).peak[OOM_PHASE_BWD1];
}

/* Liger's keeps two gradients, of hidden states and head; cut cross-entropy the hidden states themselves, a
 * logsumexp (4) and a place (8) per token with a successor, and a number per word. */
static void cut_keeps_no_logits(void **state)
{
	(void)state;
	about(kept("precision=bf16 loss=fused"), kept("precision=bf16 loss=cut"),
	      2 * V * H - 4 * V - 12 * B * (S - 1), "bf16");
	/* the head's gradient in 16 bit and the fp32 one it is cast to, beside the hidden states' in 16 bit
	 * and the order of words */
	about(backward("precision=amp-bf16 loss=cut"), of("precision=amp-bf16 loss=cut").end[OOM_PHASE_FWD1],
	      6 * V * H + 2 * B * S * H + 4 * V, "autocast");
	assert_true(backward("precision=bf16 loss=cut") < backward("precision=bf16") - 5 * B * S * V);
}

/* log-probabilities in fp32 of every token, and the copies that the mask picks in place of the hidden states. */
static void torchtune_keeps_log_probabilities(void **state)
{
	(void)state;
	about(kept("precision=bf16 loss=chunked"), kept("precision=bf16 loss=cut"),
	      4 * B * S * V - 4 * V, "of all parts");
	assert_true(backward("precision=bf16 loss=chunked") < backward("precision=bf16"));
}

/* litgpt's: fp32 logits and log-probabilities of all tokens; zeros and gradient in fp32 of a quarter alone, whose gradient in
 * bf16 takes the place of either.  Nothing of it is left in an evaluation, which makes whole logits. */
static void litgpt_keeps_logits_twice(void **state)
{
	(void)state;
	about(kept("precision=bf16 loss=parts"), kept("precision=bf16 loss=cut"), 8 * B * S * V - 4 * V, "of all parts");
	about(backward("precision=bf16 loss=parts lora-r=1 lora-targets=q_proj"), of("precision=bf16 loss=parts lora-r=1 lora-targets=q_proj").end[OOM_PHASE_FWD1],
	      8 * B * S / 4 * V, "a quarter's gradients");
	assert_int_equal(of("precision=bf16 loss=parts").peak[OOM_PHASE_EVAL], of("precision=bf16 loss=plain").peak[OOM_PHASE_EVAL]);
}

/* What tiles keep is what Liger's chunks do; a turn takes 14 bytes per logit of an eighth of the tokens: the
 * log-probabilities, zeros and the gradient in fp32 beside the logits in bf16. */
static void tiles_grow_with_an_eighth_of_the_batch(void **state)
{
	const uint64_t four = of("precision=bf16 loss=tiled").peak[OOM_PHASE_FWD1],
		       eight = of("precision=bf16 loss=tiled micro-batch=8").peak[OOM_PHASE_FWD1],
		       half = of("precision=bf16 loss=tiled loss-chunk=128").peak[OOM_PHASE_FWD1];

	(void)state;
	assert_int_equal(kept("precision=bf16 loss=tiled"), kept("precision=bf16 loss=fused"));
	assert_true(eight - four >= 14 * B * S / 8 * V);
	about(four, half, 14 * (B * S / 8 - 128) * V, "128 tokens");
}

/* The fp32 logits become their gradient: with its 16-bit copy 6 bytes per logit, where log-probabilities, zeros and
 * gradient are 12.  Compiled: the 16-bit logits and their gradient, 4. */
static void whole_logits_in_one_kernel(void **state)
{
	(void)state;
	about(backward("precision=bf16"), backward("precision=bf16 loss=in-place"), 6 * B * S * V,
	      "in place");
	about(backward("precision=bf16"), backward("precision=bf16 loss=compiled"), 8 * B * S * V,
	      "compiled");
	about(kept("precision=bf16 loss=in-place"), kept("precision=bf16 loss=compiled"),
	      2 * B * S * V, "kept");
}

/* In bf16 what plain has in fp32: log-probabilities, zeros and gradient are 6 bytes a logit.  Autocast makes the copy
 * itself.  What torch.compile makes of the loss does not reach one that the loop computes: 12 bytes a logit instead of 6: the
 * saved logits, zeros for the gradient of those returned and the gradient (test_compiled_readings.c). */
static void a_loop_computes_the_loss_itself(void **state)
{
	(void)state;
	about(backward("precision=bf16"), backward("precision=bf16 loss=own-type"), 6 * B * S * V, "bf16");
	assert_int_equal(backward("precision=amp-bf16 loss=own-type"), backward("precision=amp-bf16"));
	assert_int_equal(backward("precision=bf16 loss=outside"), backward("precision=bf16"));
	about(backward("precision=bf16 loss=outside compile=true"), backward("precision=bf16 compile=true"),
	      6 * B * S * V, "outside of the compiled graph");
}

/* flash-attn's, which llm-foundry asks for as fused_crossentropy (inplace_backward stays False): the same 4 bytes
 * a logit, kept are 2 and a logsumexp; under autocast and in an evaluation likewise.  In fp32 8. */
static void flash_attns_reads_16_bit_logits(void **state)
{
	(void)state;
	about(backward("precision=bf16"), backward("precision=bf16 loss=flash"), 8 * B * S * V, "bf16");
	about(backward("precision=amp-bf16"), backward("precision=amp-bf16 loss=flash"), 8 * B * S * V,
	      "autocast");
	about(backward("precision=fp32"), backward("precision=fp32 loss=flash"), 4 * B * S * V, "fp32");
	about(kept("precision=bf16 loss=flash"), kept("precision=bf16 loss=fused"),
	      2 * B * S * V - 2 * V * H, "kept");  /* hidden states either way: or their gradient */
	assert_int_equal(backward("precision=bf16 loss=xentropy"), backward("precision=bf16 loss=flash"));
	about(of("precision=bf16").peak[OOM_PHASE_EVAL], of("precision=bf16 loss=flash").peak[OOM_PHASE_EVAL],
	      8 * B * S * V, "evaluation");
}

/* Five norms keep a 16-bit input in place of its fp32 copy (4) and the normalised one (2); two feed-forwards of
 * width 512 one tensor less. */
static void ligers_kernels_keep_inputs(void **state)
{
	const uint64_t plain = kept("precision=bf16 loss=fused");

	(void)state;
	about(plain, kept("precision=bf16 loss=fused liger-kernels=norm"), 5 * 4 * B * S * H, "norms");
	assert_int_equal(plain - kept("precision=bf16 loss=fused liger-kernels=glu"), 2 * 2 * B * S * 512);
	assert_true(kept("precision=bf16 loss=fused liger-kernels=all") <=
		    kept("precision=bf16 loss=fused liger-kernels=norm") - 2 * 2 * B * S * 512);
	/* with fp32 weights and no autocast there is no copy to spare, but the normalised input */
	about(kept("precision=fp32 loss=fused"), kept("precision=fp32 loss=fused liger-kernels=norm"),
	      5 * 4 * B * S * H, "norms in fp32");
}

/* Each batch of an evaluation without an fp32 copy: logits of 2 bytes; the third meets the second's. */
static void the_batch_before_waits(void **state)
{
	const char *words = "precision=bf16 eval-batch=4 eval-accumulation=%d";
	uint64_t peak[4] = {0};

	(void)state;
	for (int n = 1; n <= 3; n++) {
		char with[100];

		snprintf(with, sizeof(with), words, n);
		peak[n] = of(with).peak[OOM_PHASE_EVAL];
	}
	assert_int_equal(peak[2] - peak[1], 2 * B * S * V);
	assert_int_equal(peak[3] - peak[2], 2 * 2 * B * S * V);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_keeps_no_logits),
		cmocka_unit_test(torchtune_keeps_log_probabilities),
		cmocka_unit_test(litgpt_keeps_logits_twice),
		cmocka_unit_test(tiles_grow_with_an_eighth_of_the_batch),
		cmocka_unit_test(whole_logits_in_one_kernel),
		cmocka_unit_test(a_loop_computes_the_loss_itself),
		cmocka_unit_test(flash_attns_reads_16_bit_logits),
		cmocka_unit_test(ligers_kernels_keep_inputs),
		cmocka_unit_test(the_batch_before_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
