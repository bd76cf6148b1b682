"""Django's PostgreSQL backend, for pools whose connections may have died while nobody used them."""
