-- What tells a merchant who changed its settings goes to the address that an endpoint had then, wherever it was moved since.
alter table deliveries drop constraint deliveries_check;
alter table deliveries add check (webhook_id is not null or url is not null);
