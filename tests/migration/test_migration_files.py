"""Migrations are only added. A database that has applied a file cannot get a changed one."""

from __future__ import annotations

import pytest

from watchbill.postgres.migrate import Source

SOURCE = Source.of_package("watchbill.store")
# The SHA-256 of each file. Do not change a line here: add a migration.
HASHES = {
    "0001_jobs.sql": "b7be2dc85ead32f5443b786b806ddbe209ab9e5a60f7f491737d089b4368e367",
    "0002_zones.sql": "7d97b95f88da0ea9471a7b088dd218ec9bc3b5020c60cea8af47cbbe6da3fa87",
    "0003_schedules.sql": "5adc2d1e621f5472c86c6b591126ac1146951597839e756ce7854f6c92a16a17",
    "0004_dependencies.sql": "886b76afe83715d1697b6670564daa08c43ca63f7982217f15fcf262392ee5f8",
    "0005_flow_control.sql": "a4c0939ac5beb14f05401c2af7539e3873465006c0e9491c6dde205e5e028993",
    "0006_locks.sql": "20ff2322edd8ba2f0c40182c50a0a5f719d73a93f33d9d708dd04eeeda837fdb",
    "0007_facades.sql": "f79f8f19c8600e2a8206de06625e9c38541076320f61396e2c1f0c4fa37195e8",
    "0008_cluster.sql": "e4eba13f88e58377ed68012745fc7f178fb28431da2a70c415974be6dce84855",
    "0009_tenants.sql": "54ace9ec35a8582bbded3506df93a6bd8dd2076b7831f8d506dd05ddc604ae27",
    "0010_uniques.sql": "fe12a93e2a33495a9af103c753b561df230d58503a915044ad0e73242580f2d3",
    "0011_quotas.sql": "fd9224a7d334389a71569abcaf53293411406d9ec9ebe5305d6cdeb41898c5d0",
    "0012_handled_types.sql": "ee473ff9c61906b9735a35f1bd2ea3e50bb71eff358a67415ad9476860e42667",
    "0013_failed_attempts.sql": "a0687ad643dcacf2301918e0800fc15ed03d3feb77a8adc8a0410dd583833a34",
    "0014_tenant_scans.sql": "251aeef95c05c903a7c084e58d3d95282a44da069c933824ec8fdf50ab416627",
    "0015_dependency_tenants.sql": "d51e453383c29ec223ecb196be4c1d5ed1066ebd3e1b43aa93bea83e699679b7",
    "0016_lane_cursors.sql": "cf0c0dedf54e7d4e2cb56bd74c1d9d6ff83461aafbd4331dc7852f3f9dff9b4d",
    "0017_schedule_ids.sql": "d12455fc94f510f9e4bafa889b2586584b82ba4b935e7d94518052616b3c05a5",
    "0018_freed_keys.sql": "412eac80aec262c42d4f4263477fcf2836f809e55cf6db09f7268b85f0b5c21b",
    "0019_failure_keys.sql": "c5e1d7adc3f263c568f9fa749f7041e790435e607684ab8f9c46e9d1a5cca18b",
    "0026_figures.sql": "4041aaee42b931e92b7ed3d58c8e8986e5cb62b51ef6b23827febf244a772f0b",
    "0020_blocked_jobs.sql": "7efd52d736464438263b9659e07f81b48b339f17706b06cef078091135809b6d",
    "0021_rate_windows.sql": "2984c91ebc964162b02e786d1f704e490abc21ffe0608507cb9015e606698b44",
    "0022_expiry.sql": "ec498e980596e435d1918cf500046ed1b8566b9e1cba16e5a7f5340deffdc201",
    "0023_expiry_index.sql": "f52d073b04c5adacaecc6aba9afe90535898776a9acbb0ddb23dc200d4d8b6c8",
    "0024_connector_endpoints.sql": "7ec292d4887dad227e0784960e3d3338b706f2a59ff63d15a893e4c672a00802",
    "0025_label_sets.sql": "91f3f3e6b8508c7412b433842a1369cd78008eeaf82f83e9e8b83365c770f566",
    "0027_passed_results.sql": "65e1dedf81445a0a812cf05c57d970c35ffdcf13501066b408e29037987a6d17",
    "0028_steps.sql": "08d440e6d18e7be483c9d3e3a882339f9ed2dd1822bef2d12bae74e9b2170681",
    "0029_bulk_operations.sql": "f52a313af4c9020067989dd2c4ee6a28f8d37842d00ad68638a6b03980781543",
    "0030_web.sql": "580875ef098e610b4d7daf31bb13ec61765a62314164724f5c047b0cdd3be78f",
    "0031_alerts.sql": "03c53abb3f391272d73b71994ca5922a5f5f28f5cf785ebe32e8d07154096192",
}


@pytest.mark.parametrize("name", HASHES)
def test_migration_is_unchanged(name: str) -> None:
    found = {migration.name: migration.checksum for migration in SOURCE.migrations}
    assert name in found, f"{name} is gone, and databases have applied it. Restore the file."
    assert found[name] == HASHES[name], (
        f"{name} was changed, and databases have applied it: `watchbill db migrate` would refuse them. Restore the "
        f"file, and write the change as {SOURCE.newest + 1:04}_name.sql."
    )
