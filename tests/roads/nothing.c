int road_nothing;
