"""From a budget to a model: plan, calibrate, train, read the guarantee."""

from sfumato import Key, calibrate, classification, evaluate, load_data, simulate
from sfumato.data import build_population
from sfumato.errors import BudgetExceeded
from sfumato.models import build
from sfumato.planning.solve import Question, solve
from sfumato.recipes.dp_fedavg import dp_fedavg

CLIENTS, ROUNDS, EPSILON, DELTA = 200, 8, 3.0, 1e-5


def main() -> None:
    # How much noise does the budget ask for, and what would the signal be? No data are needed for that.
    plan = solve(Question(None, "poisson:0.25", ROUNDS, EPSILON, DELTA, clients=CLIENTS, dimension=650))
    print(
        f"planned: noise {plan.setting.law.noise_multiplier:.4f} times the clip norm, signal {plan.signal_to_noise:.2f}"
    )

    # The same through a Round: the derivation itself is calibrated, so what is found is what is proven.
    round = dp_fedavg(CLIENTS, sample="poisson:0.25", clip=1.0, lr=0.5, epochs=5)
    round = calibrate(round, epsilon=EPSILON, delta=DELTA, rounds=ROUNDS, population=CLIENTS)
    print(f"calibrated: {round.server[0]}")

    digits = load_data("digits")
    population = build_population(digits, CLIENTS, "iid", Key.from_seed(0), records_per_client=7)
    model = build("logistic", digits.input_shape, digits.classes, Key.from_seed(0))
    objective = classification(digits.classes)
    run = simulate(round, population, model, objective, rounds=ROUNDS, budget=(EPSILON, DELTA))
    for progress in run:
        pass
    accuracy = evaluate(progress.module, digits.test.records, objective)["accuracy"]
    print(f"accuracy {accuracy:.3f} on public test data after {progress.round} rounds")
    print(progress.guarantee())

    # Twice the rounds with the same noise do not fit: the run stops before the round that would pass the budget.
    longer = simulate(round, population, model, objective, rounds=2 * ROUNDS, budget=(EPSILON, DELTA))
    try:
        for progress in longer:
            pass
    except BudgetExceeded as stop:
        print(f"stopped: {stop}")


if __name__ == "__main__":
    main()
