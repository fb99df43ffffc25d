/* The operations that make a length of a variable of the batch: what each comes to stands in lengths.c. */
#ifndef OOM_TAPE_LENGTHS_H
#define OOM_TAPE_LENGTHS_H

/* Every operation: its name; the value of a variable x >= 1 with the parameters k and more in a
 * batch of b >= 1; whether that can be 0; the text, in which %x stands for the variable, %k and %m
 * for the parameters and %h for their product. */
#define LENGTHS(ROW)                                                                     \
	ROW(AS_IS, x, false, "%x")                                                       \
	ROW(CONST, k, k == 0, "%k")                                                      \
	ROW(PLUS, x + k, false, "(%x+%k)")                                               \
	ROW(MINUS, x > k ? x - k : 0, true, "max(%x-%k,0)")                              \
	ROW(MIN, x < k ? x : k, k == 0, "min(%x,%k)")                                    \
	ROW(CEIL, oom_ceil_div(x, k), false, "ceil(%x/%k)")                              \
	ROW(ROUND_UP, oom_round_up(x, k), false, "roundup(%x,%k)")                       \
	ROW(CHUNKS, chunks(x, k, more), more < 0, "(ceil(%x/%k)%m)")                     \
	ROW(PADDED, padded(x, k, more), more < -1, "(roundup(%x,%k)%h/2)")               \
	ROW(PLUS_IN_ONE, b == 1 ? x + k : x, false, "(%x+%k if b=1)")                    \
	ROW(PLUS_IN_MANY, b == 1 ? 0 : x + k, true, "(%x+%k if b>1)")                    \
	ROW(PLUS_CEIL, oom_ceil_div(x + (uint64_t)more, k), false, "ceil((%x%m)/%k)")     \
	ROW(PLUS_ROUND_UP, oom_round_up(x + (uint64_t)more, k), false, "roundup(%x%m,%k)") \
	ROW(POW2_PART, pow2_part(x, b, k), false, "pow2(b*%x/%k)")                       \
	ROW(CHUNKS_BEFORE, chunks_before(tokens_of(b, x, more), k), true, "max(b*(%x%m)/%k-1,0)") \
	ROW(SUM_PARTS, oom_sum_parts(tokens_of(b, x, 0), k), true, "parts of a sum over b*%x, about %k") \
	ROW(SUM_PARTS_OF, oom_sum_parts(tokens_of(x, (uint64_t)more, 0), k), true, "parts of a sum over %x*%m, about %k") \
	ROW(CHUNKS_BEFORE_OF, chunks_before(tokens_of(x, (uint64_t)more, 0), k), true, "max(%x*%m/%k-1,0)")

#define OOM_LEN_ENUM(name, value, vanishes, text) LEN_##name,
enum { LENGTHS(OOM_LEN_ENUM) };

#endif
