'''Saved by an editor for Windows: CRLF line ends, tabs, semicolons, and no newline at the end.'''
from torch.nn import functional as F;	from collectives import all_reduce
def split_mlp(mlp, t) :
	h = mlp[0].out_features
	if t<1 or h%t : raise ValueError("""%s
%s""" % (t, h))
	n = h//t; s = []
	for r in range(t) :
		a, b = r*n, (r+1)*n
		s += [{'W1':mlp[0].weight[a:b], 'b1':mlp[0].bias[a:b], 'W2':mlp[2].weight[:,a:b]}]
	return s, mlp[2].bias
def tp_mlp_forward(x, shards, b2, counter=None) :
	return all_reduce([F.linear(F.gelu(F.linear(x, s['W1'], s['b1'])), s['W2']) for s in shards], counter) + \
		b2
def tp_attention_forward(attn, x, t, counter=None) :
	H = attn.n_heads
	if t<1 or H%t : raise ValueError("%s %s" % (t, H))
	n = attn.q_proj.out_features//t; parts = []
	for r in range(t) :
		w = lambda p : F.linear(x, p.weight[r*n:(r+1)*n], p.bias[r*n:(r+1)*n]).unflatten(-1, (H//t, -1)).transpose(1, 2)
		o = F.scaled_dot_product_attention(w(attn.q_proj), w(attn.k_proj), w(attn.v_proj), is_causal=True)
		parts.append(F.linear(o.transpose(1, 2).flatten(2), attn.out_proj.weight[:,r*n:(r+1)*n]))
	return all_reduce(parts, counter) + attn.out_proj.bias
def tp_model_forward(model, idx, t, counter=None) :
	T = idx.shape[1]
	if T>model.context : raise ValueError(T)
	x = model.tok_emb(idx) + model.pos_emb.weight[:T]
	for b in model.blocks :
		x = x + tp_attention_forward(b.attn, b.ln1(x), t, counter); x = x + tp_mlp_forward(b.ln2(x), *split_mlp(b.mlp, t), counter)
	return F.linear(model.ln_f(x), model.tok_emb.weight)