-- A shop's orders, of 2 KB each, and visits to them in the order of time: nine of ten are to the newest
-- tenth.
create table letter(body text);
insert into letter values (printf('%.1850c', 'x'));
create table orders(id integer primary key, note text, price int);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 36000)
insert into orders select i, body, i * 7919 % 5000 from n cross join letter;
create table visit(orders int);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000)
insert into visit
select case when i % 10 = 0 then 1 + i * 104729 % 36000 else 36000 - i * 7919 % 3600 end from n;
