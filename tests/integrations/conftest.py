collect_ignore = ["django_site"]
