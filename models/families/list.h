/* One line a family: FAMILY(x) is oom_family_x in x.c.  No include guard: read several times. */
FAMILY(bart)
FAMILY(bert)
FAMILY(distilbert)
FAMILY(gpt2)
FAMILY(gpt_neox)
FAMILY(llama)
FAMILY(opt)
FAMILY(vit)
