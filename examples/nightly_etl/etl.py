"""Every night: read the sales of each region, load them into one table, check them. `watchbill up etl` runs it."""

from __future__ import annotations

import csv
import os
from decimal import Decimal
from pathlib import Path

import watchbill
from watchbill import App, Permanent, Retry, chain, group

app = App(name="etl")
FILES = Path(os.environ.get("SALES", Path(__file__).parent / "sales"))
REGIONS = ("north", "south")
Sale = tuple[str, str, Decimal]  # region, day, amount

TABLE = """
CREATE TABLE IF NOT EXISTS sales (
  region text, day date, amount numeric NOT NULL, PRIMARY KEY (region, day))
"""


@app.task(queue="etl", retry=Retry(max_attempts=5, base="1m"), timeout="10m")
def extract(region: str) -> list[Sale]:
    """A file that is late is tried again. One that cannot be right is not: somebody has to look at it."""
    with (FILES / f"{region}.csv").open() as file:
        sales = [(region, row["day"], Decimal(row["amount"])) for row in csv.DictReader(file)]
    if any(amount < 0 for _, _, amount in sales):
        raise Permanent(f"{region}.csv has a negative amount")
    return sales


@app.task(queue="etl")
def load(connection: watchbill.Connection, regions: list[list[Sale]]) -> int:
    """Transactional: the rows and the end of the job commit together. To load a day again replaces it."""
    sales = [sale for region in regions for sale in region]
    connection.execute(TABLE)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO sales VALUES (%s, %s, %s) ON CONFLICT (region, day) DO UPDATE SET amount = EXCLUDED.amount",
            sales,
        )
    return len(sales)


@app.task(queue="etl")
def check(connection: watchbill.Connection, loaded: int) -> str:
    row = connection.execute("SELECT count(*), sum(amount) FROM sales").fetchone()
    assert row is not None
    if row[0] < loaded:
        raise Permanent(f"{loaded} days were loaded, and the table has {row[0]}")
    return f"{row[0]} days, {row[1]} in all"


@app.task(queue="etl")
def tell_somebody() -> None:
    """Runs only if a step has failed. Send a mail here, or leave it to `watchbill alerts`."""
    print("The night has failed: see watchbill dead list", flush=True)


regions = group(*(extract.bind(region) for region in REGIONS))
loaded = load.bind(regions=regions.results)
night = chain(regions, loaded, check.bind(loaded=loaded.result)).on_failure(tell_somebody.bind())
app.declare_schedule("nightly", "30 2 * * *", tz="Europe/Paris", task=night, missed="once", overlap="skip")
