"""Test-time compute: accuracy per token spent at inference. `groupwise budget` calls `measure_budget`.

    problems -> a pool of samples and their scores (pool) -> accuracy at every budget (methods)
             -> searches over steps (search), chains of attempts (chains)
             -> points with costs, the best method by difficulty, comparisons at equal tokens (result)

Everything that took time is stored on disk (`pool.Store`), so that a kill loses a few problems.
"""
