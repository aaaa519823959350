"""Test-time compute: what more tokens at the time of the answer are worth. `groupwise budget` is `measure_budget`.

    problems -> a pool of samples (pool) -> scores of every sample (scores) -> accuracy at every budget (methods)
             -> searches over steps (search), chains (chains)               -> the best for each difficulty (optimal)
                                                                            -> points with costs (result)

Whatever took time is kept on disk (store), so that a kill loses a few problems.
"""
