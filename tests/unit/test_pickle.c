/* The pickle subset: bytes written by hand from the opcode table of Python's pickletools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "diagnose/pickle.h"

#define PARSE(p, s) oom_pickle_parse(p, (const uint8_t *)(s), sizeof(s) - 1, NULL)

static void test_values(void **state)
{
	struct oom_pickle p = {0};

	(void)state;
	/* {"a": [1, -2]}, protocol 4 */
	assert_int_equal(PARSE(&p, "\x80\x04}\x94\x8c\x01"
				   "a\x94]\x94(K\x01J\xfe\xff\xff\xff"
				   "es."),
			 OOM_OK);
	assert_int_equal(p.nodes[p.root].kind, OOM_PICKLE_DICT);
	assert_int_equal(p.nodes[p.root].n, 2);
	const struct oom_pickle_node *l = &p.nodes[p.nodes[p.root].u.items[1]];
	assert_int_equal(l->n, 2);
	assert_int_equal(p.nodes[l->u.items[1]].u.integer, -2);
	oom_pickle_release(&p);
}

static void test_hostile(void **state)
{
	struct oom_pickle p = {0};

	(void)state;
	assert_int_equal(PARSE(&p, "cos\nsystem\n(X\x02\0\0\0lstR."), OOM_ERR_INVALID);
	assert_int_equal(PARSE(&p, "\x80\x04\x93."), OOM_ERR_INVALID);
	assert_int_equal(PARSE(&p, "X\xff\xff\xff\x7f."), OOM_ERR_PARSE);
	assert_int_equal(PARSE(&p, "](K\x01(e."), OOM_ERR_PARSE);
	assert_int_equal(PARSE(&p, "h\x05."), OOM_ERR_PARSE);
	assert_int_equal(PARSE(&p, "e"), OOM_ERR_PARSE);
	assert_int_equal(PARSE(&p, "K\x01"), OOM_ERR_PARSE);
	assert_int_equal(PARSE(&p, ""), OOM_ERR_PARSE);
	assert_null(p.nodes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
					   cmocka_unit_test(test_hostile)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
