"""Which promises a shape keeps in the tabular case, and a counterexample where it keeps one not.

    improvement   T1: whatever raises the objective improves the policy
    steps         T2: so does the inner loop, at every step size
    inner_loop    T3: where the inner loop ends
    dynamics      small MDPs, solved exactly: what happens to the return
    adversary     a search for an MDP on which the return falls

A refutation is a bandit or an MDP in numbers. `recheck`, `exact` and `slopes` compute it again, and
share no code with the search that found it.
"""
