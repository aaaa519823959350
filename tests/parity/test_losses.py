import pytest
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")]

def test_x(batch, ours, theirs):
    a = ours(batch, "group_normalised_sample", aggregation="sequence", epochs=2)
    b = theirs(batch, loss_type="grpo", num_iterations=2)
    print(a.loss, b.loss, a.metrics)
    for g, h in zip(a.gradients, b.gradients, strict=True):
        assert g.keys() == h.keys()
        for n in g:
            print(n, float((g[n]-h[n]).abs().max()), float(h[n].abs().max()))
    assert 0
